"""Numbers as a few lines of text."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from longtail.evaluation import Estimate, Evaluation


def accuracy_lines(found: "Evaluation") -> list[str]:
    """Accuracy over all images, over the classes, and of each group, with intervals."""
    rows: dict[str, Estimate | None] = {"all": found.top1, "balanced": found.balanced}
    rows |= {group: result.accuracy for group, result in found.groups.items()}
    lines = [f"{'':10}{'accuracy':>9}  95 % interval"]
    for name, estimate in rows.items():
        if estimate is None:
            lines.append(f"{name:10}{'-':>9}  no test image")
        elif estimate.low is None or estimate.high is None:
            lines.append(f"{name:10}{estimate.value:9.1%}  none from one image")
        else:
            lines.append(f"{name:10}{estimate.value:9.1%}  {estimate.low:.1%} to {estimate.high:.1%}")
    return lines
