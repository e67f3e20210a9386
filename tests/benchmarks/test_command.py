"""`python -m benchmarks`: what it refuses to measure."""

import pytest

from benchmarks.__main__ import parse_arguments


def test_models_that_no_chosen_benchmark_has_are_refused(capsys):
    with pytest.raises(SystemExit):
        parse_arguments(["--only=loop,memory", "--models=resnet"])
    told = "--models: ['loop', 'memory'] measure none of ['resnet']; choose from ['cnn', 'logistic'"
    assert told in capsys.readouterr().err


def test_a_benchmark_without_any_of_the_models_may_stand_beside_one_that_has_some():
    options = parse_arguments(["--only=loop,memory", "--models=mlp"])
    assert (options.only, options.models) == (["loop", "memory"], ["mlp"])
