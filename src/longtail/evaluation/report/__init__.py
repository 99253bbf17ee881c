"""`report.html`: what a run found, on one page that opens anywhere."""

from longtail.evaluation.report.page import render_comparison, render_report, save_page
from longtail.evaluation.report.report import PostHoc, Report, Thumbnail

__all__ = ["PostHoc", "Report", "Thumbnail", "render_comparison", "render_report", "save_page"]
