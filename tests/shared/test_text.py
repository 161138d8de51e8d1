"""JSON as Go writes it: what needs no escaping is not looked through."""

import json
import re

from hypothesis import given
from hypothesis import strategies as st

from shared.text import go_json

ODD = st.text(st.sampled_from('ab<>&\u2028\u2029\ud800\udfff\u00e9"\\\n'))


@given(ODD | st.text())
def test_the_text_is_the_same_with_and_without_looking(text: str) -> None:
    written = go_json([text])
    assert not re.search("[<>&\u2028\u2029\ud800-\udfff]", written)
    assert json.loads(written) == [re.sub("[\ud800-\udfff]", "\ufffd", text)]
