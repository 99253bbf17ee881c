"""A folder that describes its model: weights, config.json, and a model card that model hubs show.

`longtail.load` reads it like a run. It is uploaded only on request.
"""

import html
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from longtail._errors import DataError, counted
from longtail._files import make_folder, whole_file, write_text
from longtail.evaluation import Estimate, Evaluation
from longtail.inference.exported import Exported
from longtail.training.run_folder.model import CONFIG, WEIGHTS, store_decision
from longtail.training.run_folder.read import model_folder, open_run

if TYPE_CHECKING:
    from longtail.inference.classifier import Classifier

CARD = "README.md"
_USE = """```python
import longtail

classifier = longtail.load("FOLDER")
classifier.predict(["image.jpg"], top=3)
```"""
# With more classes, only config.json lists them.
_MOST_CLASSES = 1000
# Metrics that are not accuracies.
_OTHER = {"head_tail_gap", "ece", "classwise_ece"}


def write_hub_folder(classifier: "Classifier", out: Path) -> Exported:
    """Write weights, config.json and the model card to the folder `out`."""
    source = model_folder(classifier.path)
    try:
        make_folder(out)
        for name in (WEIGHTS, CONFIG):
            if (source / name).resolve() != (out / name).resolve():
                with (source / name).open("rb") as original, whole_file(out / name) as copy:
                    shutil.copyfileobj(original, copy)
    except OSError as error:
        raise DataError(
            f"cannot write {out}: {error.strerror or error}",
            "",
            "free some space, or choose another --out",
            code="cannot-write",
        ) from error
    if classifier.decision is None and classifier.saved.decision is not None and out.resolve() != source.resolve():
        store_decision(out, None)
    write_text(out / CARD, model_card(classifier, _measured(classifier)))
    return Exported(out)


def push_to_hub(folder: Path, repository: str) -> str:
    """Upload the folder to `repository` (`name/model`) on the Hugging Face hub; return its address."""
    from huggingface_hub import HfApi

    try:
        api = HfApi()
        address = api.create_repo(repository, exist_ok=True)
        api.upload_folder(folder_path=folder, repo_id=repository, commit_message="Add a model trained by longtail")
    except Exception as error:  # the client's errors differ between its versions and with its HTTP library
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise DataError(
            f"could not upload {folder} to {repository} on the hub: {reason}",
            "the folder itself is complete",
            "check the network and the name, log in with `hf auth login`, and try again",
            code="hub",
        ) from error
    return str(address)


def model_card(classifier: "Classifier", found: Evaluation | None) -> str:
    """The text of README.md: what the model is, how to use it, its accuracy and its limits."""
    config = classifier.saved.config
    name = classifier.path.resolve().name
    counts = classifier.class_counts
    groups = counts.groups()
    parts = [
        f"# {_text(name)}",
        f"{_text(config['model']['name'])} trained with `{config['method'].get('name')}` "
        f"on {_text(str(config.get('data')))}: "
        f"{counted(len(counts), 'class')} with {max(counts):,} to {min(counts):,} training images "
        f"(imbalance factor {counts.imbalance_factor:.4g}). Made with longtail {config['longtail']}.",
        "## Use",
        _USE,
    ]
    if classifier.decision is not None:
        parts.append(f"Its logits are adjusted after the training: {_text(str(classifier.decision))}.")
    if found is not None:
        parts += ["## Results", _results(found)]
    if "few" in groups:
        parts += [
            "## Limits",
            f"{counted(len(groups['few']), 'class')} had fewer than 20 training images. The model has seen little of "
            f"{'it' if len(groups['few']) == 1 else 'them'}: check such predictions.",
        ]
    if len(counts) <= _MOST_CLASSES:
        parts += ["## Classes", _classes(classifier)]
    return f"---\n{_front_matter(classifier, found, name)}---\n\n" + "\n\n".join(parts) + "\n"


def _measured(classifier: "Classifier") -> Evaluation | None:
    """The evaluation of the run that the model comes from; None without the run."""
    if not (classifier.path / "config.yaml").exists():
        return None
    return open_run(classifier.path).evaluate(as_trained=classifier.decision is None)


def _front_matter(classifier: "Classifier", found: Evaluation | None, name: str) -> str:
    config = classifier.saved.config
    content: dict[str, Any] = {
        "library_name": "longtail",
        "pipeline_tag": "image-classification",
        "tags": ["image-classification", "long-tailed", str(config["method"].get("name"))],
    }
    if found is not None:
        metrics = {f"{key} accuracy": value for key, value in found.metrics.items() if key not in _OTHER}
        content["model-index"] = [
            {
                "name": name,
                "results": [
                    {
                        "task": {"type": "image-classification"},
                        "dataset": {"name": str(config.get("data")), "type": str(config.get("data"))},
                        "metrics": [
                            {"type": "accuracy", "name": key, "value": round(value, 4)}
                            for key, value in metrics.items()
                            if value is not None
                        ],
                    }
                ],
            }
        ]
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True)


def _results(found: Evaluation) -> str:
    rows: dict[str, Estimate | None] = {"top-1": found.top1, "balanced": found.balanced}
    rows |= {f"{group}-shot": result.accuracy for group, result in found.groups.items()}
    lines = [f"| {name} | {_percent(estimate)} |" for name, estimate in rows.items() if estimate is not None]
    return "\n".join(
        [
            f"On {counted(found.images, 'test image')}, weights of the last epoch; {found.definition}.",
            "",
            "| Accuracy | with 95 % interval |",
            "|---|---|",
            *lines,
        ]
    )


def _percent(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:.1%}"
    return f"{estimate.value:.1%} ({estimate.low:.1%} to {estimate.high:.1%})"


def _classes(classifier: "Classifier") -> str:
    rows = zip(classifier.classes, classifier.class_counts, strict=True)
    return "\n".join(
        ["| Class | Training images |", "|---|---|", *(f"| {_text(name)} | {count:,} |" for name, count in rows)]
    )


def _text(name: str) -> str:
    """A name escaped for Markdown, on one line."""
    safe = html.escape(" ".join(name.split()), quote=False)
    return "".join(f"\\{c}" if c in r"\`*_[]#|" else c for c in safe)
