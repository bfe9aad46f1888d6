"""What became of each field of a task file, as people read it."""

from collections.abc import Sequence

from yunhe.entrypoints.cli.session.task_files import GivenTask
from yunhe.entrypoints.cli.terminal.screen import err, out, table
from yunhe.trading.demand.skypilot.cases import Effect

NAMED = 6


def tell_fields(given: Sequence[GivenTask], *, every: bool) -> None:
    """Print every field with what becomes of it; else one line, where some do not mean what they say by themselves."""
    if not every:
        other = [note.field for one in given for note in one.notes if note.effect is not Effect.HONOURED]
        told = list(dict.fromkeys(other))
        if told:
            more = f" and {len(told) - NAMED} more" if len(told) > NAMED else ""
            err().print(
                f"read with a meaning of their own: {', '.join(told[:NAMED])}{more}; --explain-fields says which"
            )
        return
    for one in given:
        out().print(f"Fields of {one.task.name}", style="bold")
        rows = [[note.field, note.value, str(note.effect), note.says] for note in one.notes]
        out().print(table(["FIELD", "VALUE", "HERE", "MEANING"], rows, flexible=(0, 1, 3)))
        out().print()
