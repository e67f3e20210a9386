"""TensorFlow's own processes form the cluster that the launcher describes."""

import pytest

from tests.launch.launching import lines_of, living, printed_pids, run, write_program


@pytest.mark.full  # Workers that train, in test_training.py, do.
@pytest.mark.slow
def test_two_workers_reduce_together(tmp_path):
    program = write_program(
        tmp_path,
        """
        import tensorflow as tf

        strategy = tf.distribute.MultiWorkerMirroredStrategy()

        @tf.function
        def add():
            context = tf.distribute.get_replica_context()
            return context.all_reduce(tf.distribute.ReduceOp.SUM, tf.constant(index + 1.0))

        print("sum", float(strategy.run(add)))
        """,
    )
    finished = run("--workers=2", "--", program)
    assert finished.returncode == 0, finished.stderr[-2000:]
    for name in ("worker 0", "worker 1"):
        assert lines_of(finished.stdout, name) == ["sum 3.0"]


@pytest.mark.slow
def test_a_variable_lives_on_the_ps_which_is_ended_at_last(tmp_path):
    program = write_program(
        tmp_path,
        """
        import tensorflow as tf

        cluster = tf.train.ClusterSpec(config["cluster"])
        server = tf.distribute.Server(cluster, job_name=role, task_index=index)
        if role == "ps":
            print("waiting", os.getpid(), flush=True)
            server.join()
        with tf.Graph().as_default(), tf.device("/job:ps/task:1"):
            variable = tf.compat.v1.get_variable("v", initializer=2.0, use_resource=True)
            doubled = variable.assign_add(variable)
            with tf.compat.v1.Session(server.target) as session:
                session.run(variable.initializer)
                print("doubled", session.run(doubled))
        """,
    )
    finished = run("--chief", "--workers=0", "--ps=2", "--", program)
    assert finished.returncode == 0, finished.stderr[-2000:]
    assert lines_of(finished.stdout, "chief 0") == ["doubled 4.0"]
    pids = printed_pids(finished)
    assert (len(pids), living(pids)) == (2, [])
