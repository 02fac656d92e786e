def test_x(east, west, unique_topic, seed):
    assert east.cluster_id != west.cluster_id
def test_y(make_site):
    s = make_site()
    s.stop(); s.start()
