"""Verdicts of a server over sessions."""

from perdure.http.client.headers import problem_of
from perdure.http.wire.session import ReportShape
from perdure.model.record import Position
from perdure.store import ContentReport, Report

__all__ = ["report_of"]


def report_of(shape: ReportShape, id: str) -> Report:
    """What reading everything of a session found."""
    content = shape.content
    return Report(
        id,
        shape.status,
        shape.events,
        None if shape.hash is None else Position(shape.events - 1, shape.hash),
        shape.closers,
        [problem_of(each) for each in shape.problems],
        shape.later,
        shape.evidence,
        None
        if content is None
        else ContentReport(
            content.count,
            content.bytes,
            tuple(content.damaged),
            content.unreadable,
            content.expired,
        ),
        shape.torn,
    )
