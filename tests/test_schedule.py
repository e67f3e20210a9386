import itertools

import pytest

from tests.schedule import order

# The file of each test, and the slow ones.
FILES = "aabbbccccddddddeeff"
SLOW = {3, 9, 15, 18}  # In b, d, e and f.


def order_of(num_processes, slow=frozenset(SLOW)):
    return order(FILES, [place in slow for place in range(len(FILES))], num_processes)


def chunks(ordered, num_processes):
    """What worksteal deals to each process."""
    left = list(ordered)
    for number in range(num_processes):
        size = len(left) // (num_processes - number)
        yield left[:size]
        del left[:size]


@pytest.mark.parametrize("num_processes", [1, 2, 3, 5])
@pytest.mark.parametrize("slow", [set(), SLOW, set(range(len(FILES)))])
def test_each_test_is_run_once_and_its_file_in_order(num_processes, slow):
    ordered = order_of(num_processes, slow)
    assert sorted(ordered) == list(range(len(FILES)))
    for file in set(FILES):
        places = [place for place in ordered if FILES[place] == file]
        assert places == sorted(places)


def test_without_slow_tests_the_order_stays():
    assert order_of(3, set()) == list(range(len(FILES)))


@pytest.mark.parametrize("num_processes", [1, 2])
def test_each_process_begins_with_its_share_of_the_slow_files(num_processes):
    begins = []
    for chunk in chunks(order_of(num_processes), num_processes):
        files = [file for file, _ in itertools.groupby(FILES[place] for place in chunk)]
        begins.append("".join(itertools.takewhile(lambda file: file in "bdef", files)))
        assert not set("bdef").intersection(files[len(begins[-1]) :])
    assert begins == {1: ["bdef"], 2: ["bd", "ef"]}[num_processes]
