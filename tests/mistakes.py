"""What a user's mistake is answered with."""

import pytest

from redraft.errors import UserError


def message(call, *args, **kwargs) -> str:
    """The one line."""
    with pytest.raises(UserError) as caught:
        call(*args, **kwargs)
    text = str(caught.value)
    assert text and "\n" not in text
    return text
