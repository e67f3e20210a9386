"""Which arguments a decorated function is given."""

import functools

import pytest

from estimator.config.checks import arguments_named

OFFERED = ("features", "labels", "mode", "params", "config")


def plain(features, labels, mode, params):
    pass


def passing_on(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


def adding_config(function):
    @functools.wraps(function)
    def wrapper(config, **kwargs):
        return function(**kwargs)

    return wrapper


def naming(function):
    @functools.wraps(function)
    def wrapper(features, mode):
        return function(features, None, mode, {})

    return wrapper


def hiding(function):
    """Without the function inside, as a decorator without `functools.wraps`."""
    return lambda features, labels: None


class Models:
    @passing_on
    def passed(self, features, labels):
        pass

    @naming
    def named(self, features, labels, mode, params):
        pass

    @passing_on
    @passing_on
    def __call__(self, features):
        pass


Models.named = naming(lambda self, features: None)


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (plain, "features labels mode params"),
        (passing_on(plain), "features labels mode params"),
        (passing_on(passing_on(plain)), "features labels mode params"),
        (naming(plain), "features mode"),
        (passing_on(naming(plain)), "features mode"),
        (naming(passing_on(plain)), "features mode"),
        (adding_config(plain), "features labels mode params config"),
        (passing_on(adding_config(naming(plain))), "features mode config"),
        (passing_on(functools.partial(plain, params=1)), "features labels mode"),
        (functools.partial(passing_on(plain), params=1), "features labels mode"),
        (functools.partial(naming(plain), mode=1), "features"),
        (naming(functools.partial(plain, mode=1)), "features mode"),
        (hiding(plain), "features labels"),
        (Models().passed, "features labels"),
        (Models().named, "mode"),
        (Models(), "features"),
    ],
)
def test_it_is_given_what_its_decorators_name_or_pass_on(function, names):
    assert set(arguments_named("fn", function, OFFERED)) == set(names.split())
