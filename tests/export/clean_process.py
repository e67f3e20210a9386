"""Loads SavedModels in the ways there are, in a process that has nothing but TensorFlow.

Run as a script: reads its jobs from one file and writes their answers to another.
"""

import pickle
import sys

import tensorflow as tf

V1 = tf.compat.v1


def answers_of_functions(job):
    """By signature: what the functions of `tf.saved_model.load` return."""
    loaded = tf.saved_model.load(job["path"], tags=job["tags"])
    found = {}
    for name, fed in job["feeds"].items():
        signature = loaded.signatures[name]
        arguments = signature.structured_input_signature[1]
        assert sorted(arguments) == sorted(fed), (name, arguments)
        tensors = {key: tf.constant(value, arguments[key].dtype) for key, value in fed.items()}
        found[name] = {key: value.numpy() for key, value in signature(**tensors).items()}
    return found


def answers_of_session(job):
    """By signature: what a session fetches. Then it runs the train op, if that is asked for."""
    with tf.Graph().as_default() as graph, V1.Session() as session:
        meta_graph = V1.saved_model.load(session, job["tags"], job["path"])
        found = {}
        for name, values in job["feeds"].items():
            signature = meta_graph.signature_def[name]
            fed = {signature.inputs[key].name: value for key, value in values.items()}
            names = {key: info.name for key, info in signature.outputs.items()}
            # In one call, a metric's value may be that before its update or that after it.
            updates = [key for key in names if key.endswith("/update_op")]
            names = {key: name for key, name in names.items() if key not in updates}
            updated = session.run({key: signature.outputs[key].name for key in updates}, fed)
            found[name] = {**updated, **session.run(names, fed)}
        if job.get("num_train_calls"):
            for _ in range(job["num_train_calls"]):
                session.run(graph.get_collection("saved_model_train_op"), fed)
            variables = [*V1.trainable_variables(), *V1.get_collection("global_step")]
            found["trained"] = {v.op.name: session.run(v) for v in variables}
        return found


def main(jobs_path, answers_path):
    with open(jobs_path, "rb") as file:
        jobs = pickle.load(file)
    answers = {}
    for name, job in jobs.items():
        answers[name] = {"functions": answers_of_functions(job), "session": answers_of_session(job)}
    assert not any(name.split(".")[0] == "estimator" for name in sys.modules)
    with open(answers_path, "wb") as file:
        pickle.dump(answers, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
