import sys
sys.path.insert(0, "/work/main/tests/faults")
import pytest
from test_random_kills import Crew
from ledger import read_topic

@pytest.mark.parametrize("i", range(25))
def test_r(i, east, west, make_scene, nursery):
    scene = make_scene(east, west)
    crew = Crew(nursery, scene)
    with scene.load() as load:
        crew.deal(3)
        v = crew.copy(0, point="look", nth=1)
        crew.copy(1); crew.copy(2)
        crew.expect_killed(v)
        crew.deal(1)
        v = crew.copy(0, point="ended", nth=2)
        try:
            crew.expect_killed(v)
        except AssertionError:
            for m in read_topic(west, f"_isthmus.{scene.link}.status"):
                print(m.key(), m.value())
            raise
    crew.end()
