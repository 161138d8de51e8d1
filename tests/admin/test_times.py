"""Times as elements of a page."""

from admin.times import age_element, clock_element, iso, moment_element, second_element

AT = 1_700_000_000_123_000_000


def test_forms() -> None:
    started = '<time datetime="2023-11-14T22:13:20.123Z" data-form='
    assert moment_element(AT) == f'{started}"ms">2023-11-14 22:13:20.123 UTC</time>'
    assert second_element(AT) == f'{started}"s">2023-11-14 22:13:20 UTC</time>'
    assert clock_element(AT) == f'{started}"clock">22:13:20 UTC</time>'
    exact = "2023-11-14 22:13:20 UTC"
    assert age_element(AT, "5.0 min") == f'{started}"s" title="{exact}">5.0 min</time>'
    for at in (0, 1 << 90, -(1 << 90)):  # no time
        assert (iso(at), moment_element(at)) == ("", "-")
