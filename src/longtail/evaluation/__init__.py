"""From predictions to metrics to a report.

The page is made by `longtail.evaluation.report`, which is imported on its own because it needs Jinja2.
"""

from longtail.evaluation.align_predictions import align_predictions
from longtail.evaluation.bootstrap import Estimate
from longtail.evaluation.choose_decision import Wanted, choose_decision
from longtail.evaluation.comparison import Comparison, compare_runs
from longtail.evaluation.decision import Decision, decide, read_decision
from longtail.evaluation.evaluate import evaluate
from longtail.evaluation.mistakes import surest_mistakes
from longtail.evaluation.mixture import MixtureLayer
from longtail.evaluation.mixture_record import MixtureRecord, mixture_records, pack_layer
from longtail.evaluation.posthoc import PostHocChoice, adjust_logits, choose_tau, fit_temperature, scale_temperature
from longtail.evaluation.predictions import Predictions, read_predictions, write_predictions
from longtail.evaluation.promise import Promise, is_kept, measure_promise, verdict
from longtail.evaluation.read_metrics import read_metrics
from longtail.evaluation.result import ClassResult, Evaluation, GroupResult
from longtail.evaluation.shifted import ShiftedAccuracy, shifted_accuracy, shifted_prior

__all__ = [
    "ClassResult",
    "Comparison",
    "Decision",
    "Estimate",
    "Evaluation",
    "GroupResult",
    "MixtureLayer",
    "MixtureRecord",
    "PostHocChoice",
    "Predictions",
    "Promise",
    "ShiftedAccuracy",
    "Wanted",
    "adjust_logits",
    "align_predictions",
    "choose_decision",
    "choose_tau",
    "compare_runs",
    "decide",
    "evaluate",
    "fit_temperature",
    "is_kept",
    "measure_promise",
    "mixture_records",
    "pack_layer",
    "read_decision",
    "read_metrics",
    "read_predictions",
    "scale_temperature",
    "shifted_accuracy",
    "shifted_prior",
    "surest_mistakes",
    "verdict",
    "write_predictions",
]
