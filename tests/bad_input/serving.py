"""Rows for `test_bad_input`: `predict` and `export_saved_model`."""

from __future__ import annotations

import tensorflow as tf

import estimator as est
from tests.bad_input.stage import (
    V1,
    batches,
    linear,
    returning,
    spec_with,
    tensor_receiver,
    with_bias,
)


def _receiver_of_another_graph():
    with tf.Graph().as_default():
        return tensor_receiver()


def _receiver_of_wrong_tensors():
    other = V1.placeholder(tf.float32, [None, 2], "other")
    return est.export.TensorServingInputReceiver(tensor_receiver().features, other)


def supervised_receiver():
    x, y = tf.TensorSpec([None, 2], tf.float32, "x"), tf.TensorSpec([None], tf.float32, "y")
    return est.experimental.build_raw_supervised_input_receiver_fn(x, y)()


def _asking_for_batch_size(features, labels, mode, params):
    return linear(tf.reshape(features, [params["batch_size"], 2]), labels, mode)


def _with_bias_in(some_mode):
    def model_fn(features, labels, mode):
        return (with_bias if mode == some_mode else linear)(features, labels, mode)

    return model_fn


def _without_kernel_in(some_mode):
    def model_fn(features, labels, mode):
        if mode != some_mode:
            return linear(features, labels, mode)
        step = V1.train.get_global_step()
        loss = tf.reduce_mean(features) + tf.reduce_mean(labels)
        return est.EstimatorSpec(mode, loss=loss, train_op=step.assign_add(1))

    return model_fn


PREDICT_MODEL = {
    "predict another model": (
        lambda s: s.predict(with_bias),
        ValueError,
        "The checkpoint / ... is another model's ... not in the checkpoint: bias",
    ),
    "no predictions": (
        lambda s: s.predict(spec_with(predictions=lambda a: None)),
        ValueError,
        "`predictions` is missing: mode 'infer' needs it",
    ),
    "the predictions are an empty dict": (
        lambda s: s.predict(spec_with(predictions=lambda a: {})),
        ValueError,
        "`predictions` ({}) must name at least one tensor",
    ),
    "the predictions hold a number": (
        lambda s: s.predict(spec_with(predictions=lambda a: {"y": 1.0})),
        TypeError,
        "`predictions['y']` (1.0) must be a tensor",
    ),
    "predict_keys is unknown": (
        lambda s: s.predict(predict_keys="classes"),
        ValueError,
        "`predict_keys` (['classes']) must name some of the predictions: ['y']",
    ),
    "predict_keys of a tensor": (
        lambda s: s.predict(
            spec_with(predictions=lambda a: a["predictions"]["y"]), predict_keys="y"
        ),
        ValueError,
        "`predict_keys` (['y']) needs predictions that are a dict ... Leave `predict_keys` out",
    ),
    "predictions of different first dimensions": (
        lambda s: s.predict(
            spec_with(predictions=lambda a: {**a["predictions"], "kernel": tf.ones([3, 2])})
        ),
        ValueError,
        "The predictions have different first dimensions (y: (2,), kernel: (3, 2)) ... Pass "
        "`yield_single_examples=False`",
    ),
    "a prediction without a first dimension": (
        lambda s: s.predict(spec_with(predictions=lambda a: tf.constant(7.0))),
        ValueError,
        "The predictions have no first dimension (predictions: ()) ... Pass "
        "`yield_single_examples=False`",
    ),
    "a sparse prediction": (
        lambda s: s.predict(
            spec_with(predictions=lambda a: {"y": tf.sparse.from_dense(a["predictions"]["y"])})
        ),
        ValueError,
        "The predictions are sparse or ragged (y) ... `yield_single_examples=False` ... to_dense",
    ),
}

EXPORT = {
    "what to start from is not there when it is exported": (
        lambda s: s.export(make=s.warm_started, checkpoint="/nowhere/model.ckpt-7"),
        ValueError,
        "`warm_start_from` ('/nowhere/model.ckpt-7') does not exist",
    ),
    "export_dir_base is a number": (
        lambda s: s.export(to=3),
        TypeError,
        "`export_dir_base` (3) must be a path",
    ),
    "export_dir_base is empty": (
        lambda s: s.export(to=""),
        ValueError,
        "`export_dir_base` ('') must be the path of a directory",
    ),
    "export_dir_base is a pattern of names": (
        lambda s: s.export(to=str(s.root / "export[1]")),
        ValueError,
        "`export_dir_base` ('/ ... export[1]') must not contain [: TensorFlow takes",
    ),
    "export_dir_base is a file": (
        lambda s: s.export(to=s.file),
        ValueError,
        "`export_dir_base` ('/ ... notes.txt') is a file; it must be a directory",
    ),
    "the serving function is a receiver": (
        lambda s: s.export(receiver_fn=None),
        TypeError,
        "`serving_input_receiver_fn` (None) must be a function that returns a ServingInputReceiver",
    ),
    "the serving function is a built-in": (
        lambda s: s.model().export_saved_model(str(s.root / "export"), dict),
        TypeError,
        "`serving_input_receiver_fn` (<class 'dict'>) is compiled code, of which Python",
    ),
    "the serving function takes arguments": (
        lambda s: s.export(receiver_fn=lambda params, mode="x": None),
        TypeError,
        "`serving_input_receiver_fn` takes arguments (params) ... Bind them with functools.partial",
    ),
    "the function of mode EVAL is none": (
        lambda s: s.export(receiver_fn=3, experimental_mode=est.ModeKeys.EVAL),
        TypeError,
        "`serving_input_receiver_fn` (3) must be a function that returns a SupervisedInputReceiver",
    ),
    "experimental_mode is unknown": (
        lambda s: s.export(experimental_mode="serve"),
        ValueError,
        "`experimental_mode` ('serve') must be ModeKeys.PREDICT, EVAL or TRAIN",
    ),
    "as_text is a string": (
        lambda s: s.export(as_text="pbtxt"),
        TypeError,
        "`as_text` ('pbtxt') must be True or False",
    ),
    "strip_default_attrs is a string": (
        lambda s: s.model().export_savedmodel(
            str(s.root / "export"), tensor_receiver, strip_default_attrs="yes"
        ),
        TypeError,
        "`strip_default_attrs` ('yes') must be True or False",
    ),
    "checkpoint_path of an export is not there": (
        lambda s: s.export(checkpoint_path=s.checkpoint("0")),
        ValueError,
        "`checkpoint_path` ( ... model.ckpt-20') is not a checkpoint",
    ),
    "input_receiver_fn_map is a function": (
        lambda s: s.export_all(tensor_receiver),
        TypeError,
        "`input_receiver_fn_map` (<function tensor_receiver ... must be a dict from ModeKeys to",
    ),
    "input_receiver_fn_map is empty": (
        lambda s: s.export_all({}),
        ValueError,
        "`input_receiver_fn_map` ({}) must name at least one of ModeKeys",
    ),
    "input_receiver_fn_map has an unknown mode": (
        lambda s: s.export_all({"predict": tensor_receiver}),
        ValueError,
        "`a key of input_receiver_fn_map` ('predict') must be ModeKeys.PREDICT, EVAL or TRAIN",
    ),
    "input_receiver_fn_map has no function": (
        lambda s: s.export_all({est.ModeKeys.EVAL: None}),
        ValueError,
        "`input_receiver_fn_map` ({'eval': None}) must name at least one of ModeKeys, with a",
    ),
    "a function of input_receiver_fn_map takes arguments": (
        lambda s: s.export_all({est.ModeKeys.TRAIN: lambda x: None}),
        TypeError,
        "`input_receiver_fn_map['train']` takes arguments (x), but it is called with none",
    ),
    "assets_extra is a list": (
        lambda s: s.export(assets_extra=["labels.txt"]),
        ValueError,
        "`assets_extra` (['labels.txt']) must be a dict",
    ),
    "an asset does not exist": (
        lambda s: s.export(assets_extra={"labels.txt": "/nowhere/labels.txt"}),
        ValueError,
        "`assets_extra['labels.txt']` ('/nowhere/labels.txt') must be the path of a file that",
    ),
    "an asset leads out of the export": (
        lambda s: s.export(assets_extra={"../../labels.txt": s.file}),
        ValueError,
        "`assets_extra` has the destination '../../labels.txt': it must be a path relative to",
    ),
}

EXPORT_RECEIVER = {
    "the receiver of EVAL is a dict": (
        lambda s: s.export(receiver_fn=lambda: {}, experimental_mode=est.ModeKeys.EVAL),
        TypeError,
        "`serving_input_receiver_fn` returned {}, a dict. It must return a SupervisedInputReceiver",
    ),
    "the serving function returns nothing": (
        lambda s: s.export(receiver_fn=lambda: None),
        TypeError,
        "`serving_input_receiver_fn` returned None, a NoneType. It must return a "
        "ServingInputReceiver or TensorServingInputReceiver",
    ),
    "the serving function returns features": (
        lambda s: s.export(receiver_fn=lambda: {"x": V1.placeholder(tf.float32, [None, 2])}),
        TypeError,
        "`serving_input_receiver_fn` returned {'x': <tf.Tensor ... a dict. It must return a "
        "ServingInputReceiver",
    ),
    "the serving function returns a dataset": (
        lambda s: s.export(receiver_fn=batches()),
        TypeError,
        "`serving_input_receiver_fn` returned <_BatchDataset ... It must return a ServingInput",
    ),
    "the placeholders are of another graph": (
        lambda s: s.export(receiver_fn=returning(_receiver_of_another_graph())),
        ValueError,
        "`serving_input_receiver_fn` returned the receiver tensor <tf.Tensor ... Make the "
        "placeholders inside the function",
    ),
}

EXPORT_MODEL = {
    "what to start from is another model's when it is exported": (
        lambda s: s.export(with_bias, make=s.warm_started, checkpoint=s.checkpoint()),
        ValueError,
        "The checkpoint / ... is another model's ... not in the checkpoint: bias",
    ),
    "an export has no batch size": (
        lambda s: s.export(_asking_for_batch_size, make=s.tpu_model, predict_batch_size=2),
        ValueError,
        '`model_fn` asks for params["batch_size"], which is not set. An export has none',
    ),
    "the graph of EVAL gets no labels": (
        lambda s: s.export(experimental_mode=est.ModeKeys.EVAL),
        ValueError,
        "`model_fn` fails without labels ... build_raw_supervised_input_receiver_fn makes a "
        "receiver with labels",
    ),
    "the graph of TRAIN has no train_op": (
        lambda s: s.export(
            spec_with(train_op=lambda a: None),
            supervised_receiver,
            experimental_mode=est.ModeKeys.TRAIN,
        ),
        ValueError,
        "`train_op` is missing: mode 'train' needs it",
    ),
    "the graph of EVAL has a variable of its own": (
        lambda s: s.export_all(
            {est.ModeKeys.TRAIN: supervised_receiver, est.ModeKeys.EVAL: supervised_receiver},
            _with_bias_in(est.ModeKeys.EVAL),
        ),
        ValueError,
        "The checkpoint / ... is another model's ... not in the checkpoint: bias",
    ),
    "the graph of EVAL has a variable that TRAIN lacks": (
        lambda s: s.export_all(
            {est.ModeKeys.TRAIN: supervised_receiver, est.ModeKeys.EVAL: supervised_receiver},
            _without_kernel_in(est.ModeKeys.TRAIN),
        ),
        ValueError,
        "The graph of mode 'eval' has variables that the graph of mode 'train' lacks (kernel), but "
        "a SavedModel holds those of its first graph alone",
    ),
    "export another model": (
        lambda s: s.export(with_bias),
        ValueError,
        "The checkpoint / ... is another model's ... not in the checkpoint: bias",
    ),
    "several outputs and no default": (
        lambda s: s.export(
            spec_with(
                export_outputs=lambda a: {
                    name: est.export.PredictOutput(a["predictions"]) for name in ("a", "b")
                }
            )
        ),
        ValueError,
        "`export_outputs` has the keys ['a', 'b']; one of several must be 'serving_default'",
    ),
    "the prediction needs a placeholder that is not fed": (
        lambda s: s.export(receiver_fn=_receiver_of_wrong_tensors),
        ValueError,
        "No signature can be made ... 'serving_default': its outputs need the placeholder 'x', "
        "which is not among its inputs ['other:0']. Add it to the receiver tensors",
    ),
}
