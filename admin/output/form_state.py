"""The state of a form that was refused: the values that were typed, and the error next to its field.

Pure. Templates ask `Refusal.of` for the state of each form, by the hidden fields that identify it. A form that was not
refused has an empty state, so that templates need no second version of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from markupsafe import Markup

from shared.http.errors import HttpError
from shared.values import whole_number

# The nodes' limits of what fields may have.
MOST_MINUTES = 30 * 24 * 60  # of a pause
MOST_SECONDS = 2**32 - 1  # of a tube's pause
MOST_DELAY = 3_600_000 * 24 * 30  # ms
LIMITS = {"most_minutes": MOST_MINUTES, "most_seconds": MOST_SECONDS, "most_delay": MOST_DELAY}
PROBLEM = "problem"  # the id of the element that describes the error: a page has at most one


class FieldError(HttpError):
    """A form was refused because of one of its fields, for the reason in the text."""

    def __init__(self, field: str, text: str, status: int = 400) -> None:
        super().__init__(status, text)
        self.field = field


def number_of(field: str, text: str, least: int, most: int, error: str) -> int:
    """Return the whole number from `least` to `most` in a form's field. Raises FieldError with the text `error`."""
    try:
        return whole_number(text, least, most)
    except ValueError:
        raise FieldError(field, error) from None


@dataclass(frozen=True, slots=True)
class FormState:
    """One form of a page: the typed values, and the refused field with its error. Empty if it was not refused."""

    typed: Mapping[str, str] = field(default_factory=dict)
    name: str = ""  # of the field that was refused; "": the form as a whole, or not at all
    text: str = ""  # the error

    @property
    def open(self) -> Markup:
        """Return the attribute that opens the <details> around a refused form."""
        return Markup(" open") if self.text else Markup()

    def value(self, name: str, default: object = "") -> str:
        """Return the value that was typed into the field, or the default."""
        return self.typed.get(name, str(default))

    def input(self, name: str, default: object = "", hint: str = "") -> Markup:
        """Return the attributes of an <input>. `hint`: the id of the element that explains the field."""
        value = self.value(name, default)
        attributes = Markup(' value="{}"').format(value) if value else Markup()
        return self.area(name, hint) + attributes

    def area(self, name: str, hint: str = "") -> Markup:
        """Return the attributes of a <textarea> or <select>, which have their value inside."""
        is_wrong = bool(self.text) and name == self.name
        described = " ".join(filter(None, (PROBLEM if is_wrong else "", hint)))
        found = Markup('name="{}"').format(name)
        if described:
            found += Markup(' aria-describedby="{}"').format(described)
        return found + Markup(' aria-invalid="true" autofocus') if is_wrong else found

    def selected(self, name: str, option: object) -> Markup:
        """Return the attribute of the <option> that was chosen."""
        return Markup(" selected") if self.typed.get(name) == str(option) else Markup()

    def problem(self, name: str) -> Markup:
        """Return the element with the error of this field, if it was refused."""
        if not self.text or name != self.name:
            return Markup()
        return Markup('<small class="bad" id="{}">{}</small>').format(PROBLEM, self.text)


EMPTY = FormState()


@dataclass(frozen=True, slots=True)
class Refusal:
    """A form that was refused. Without a text there is none."""

    typed: Mapping[str, str] = field(default_factory=dict)
    text: str = ""
    field: str = ""  # its name; "": the form as a whole
    advice: str = ""  # what to do
    status: int = 200  # of the answer

    def of(self, hidden: Mapping[str, object]) -> FormState:
        """Return the state of the form that has these hidden fields."""
        if not self.text or any(self.typed.get(name, "") != str(value) for name, value in hidden.items()):
            return EMPTY
        return FormState(self.typed, self.field, self.text)


NONE = Refusal()
