"""Where the loop's own decisions run: a GPU is not asked whether to go on."""

import pytest
import tensorflow as tf

import estimator as est
from tests.toy import Model, numbers

V1 = tf.compat.v1
BOOLS = {"Equal", "IsFinite", "LogicalAnd", "LogicalNot", "NotEqual", "All", "OptionalHasValue"}


class Keep(est.SessionRunHook):
    """Keeps the graph."""

    def begin(self):
        self.graph = V1.get_default_graph().as_graph_def()


@pytest.mark.parametrize("nan_policy", ["raise", "ignore"])
def test_no_bool_of_a_loop_is_left_to_a_gpu(nan_policy, tmp_path):
    def model_fn(features, labels, mode):
        spec = Model()(features, labels, mode)
        V1.summary.scalar("copy", spec.loss)
        return spec

    keep = Keep()
    config = est.RunConfig(iterations_per_loop=3, nan_policy=nan_policy)
    est.Estimator(model_fn, str(tmp_path), config).train(numbers(3), hooks=[keep])
    functions = {function.signature.name: function for function in keep.graph.library.function}
    (loop,) = [node for node in keep.graph.node if node.op in ("While", "StatelessWhile")]
    assert tf.bool.as_datatype_enum not in loop.attr["T"].list.type
    condition = functions[loop.attr["cond"].func.name]
    ops = [node.op for node in condition.node_def if node.op != "Identity"]
    assert sorted(ops) == ["Const", "Less"]
    body = functions.pop(loop.attr["body"].func.name)
    bools = [node for node in body.node_def if node.op in BOOLS]
    assert {"Equal", "LogicalNot", "LogicalAnd"} <= {node.op for node in bools}
    assert {node.device for node in bools} == {"/device:CPU:0"}
