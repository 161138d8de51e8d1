"""A refused form keeps the typed values, and has the error at its field and at no other."""

from admin.output.form_state import NONE, Refusal

TYPED = {"action": "publish", "body": '"><script>', "delay": "-1"}
REFUSED = Refusal(TYPED, "Delay must be 0 to 9 ms.", "delay", "", 400)


def test_the_field_has_its_value_and_its_error() -> None:
    form = REFUSED.of({"action": "publish"})
    assert form.input("delay") == 'name="delay" aria-describedby="problem" aria-invalid="true" autofocus value="-1"'
    assert form.problem("delay") == '<small class="bad" id="problem">Delay must be 0 to 9 ms.</small>'
    assert form.input("delay", hint="h").startswith('name="delay" aria-describedby="problem h"')
    assert (form.area("body"), form.problem("body")) == ('name="body"', "")
    assert form.input("body") == 'name="body" value="&#34;&gt;&lt;script&gt;"'
    assert form.value("body") == TYPED["body"]  # the template escapes it
    assert form.open == " open"


def test_another_form_of_the_page_is_as_it_was() -> None:
    for form in (REFUSED.of({"action": "pause"}), NONE.of({"action": "publish"}), NONE.of({})):
        assert form.input("delay") == 'name="delay"'
        assert form.input("delay", "7", "h") == 'name="delay" aria-describedby="h" value="7"'
        assert (form.problem("delay"), form.open, form.selected("node", "")) == ("", "", "")


def test_the_chosen_option_stays_chosen_and_hidden_numbers_count_as_text() -> None:
    form = Refusal({"action": "forget", "node": "3"}, "No.").of({"action": "forget", "node": 3})
    assert (form.selected("node", 3), form.selected("node", 4)) == (" selected", "")
