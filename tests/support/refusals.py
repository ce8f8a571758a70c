"""What a mistake is answered by: a class and a parameter, whatever the words."""

import pytest

from triptych.core.errors import UserError


def refused(parameter: str, error: type[UserError] = UserError):
    """`pytest.raises` for a UserError whose sentence is about this parameter."""
    return pytest.raises(error, check=lambda raised: raised.parameter == parameter)
