"""`report.html`: what a run found, on one page that opens anywhere."""

from longtail.evaluation.report import mixture_section as mixture_section  # registers itself
from longtail.evaluation.report.base import SECTIONS, Section
from longtail.evaluation.report.render import render_comparison, render_report
from longtail.evaluation.report.render_check import render_check
from longtail.evaluation.report.report import Adjustment, PostHoc, Report, Thumbnail
from longtail.evaluation.report.seed_summary import SeedSummary, Spread, render_seeds
from longtail.evaluation.report.study_record import StudyRecord, StudyTrial, render_study

__all__ = [
    "SECTIONS",
    "Adjustment",
    "PostHoc",
    "Report",
    "Section",
    "SeedSummary",
    "Spread",
    "StudyRecord",
    "StudyTrial",
    "Thumbnail",
    "render_check",
    "render_comparison",
    "render_report",
    "render_seeds",
    "render_study",
]
