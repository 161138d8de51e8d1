"""Notes for a failing simulator run: the stories of the messages that its error names."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from nsqd.core.story import Story, story_of, story_of_body

MOST = 5  # messages whose story is added
_BODY = re.compile(r"b'([^']*)'|b\"([^\"]*)\"")
_ID = re.compile(r"\b[0-9a-f]{16}\b")


@contextmanager
def told_of(story: Story) -> Iterator[None]:
    """An AssertionError in here gets the stories of the messages that it names, by body or id, as a note."""
    try:
        yield
    except AssertionError as error:
        text, events = str(error), story.events()
        bodies = [(found[0] or found[1]).encode() for found in _BODY.findall(text)]
        stories = {body.decode(): story_of_body(events, body) for body in bodies}
        stories |= {name: story_of(events, name.encode()) for name in _ID.findall(text)}
        for name, lines in list(stories.items())[:MOST]:
            error.add_note("\n".join([f"The story of {name}:", *lines]))
        raise
