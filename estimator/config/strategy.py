import tensorflow as tf
def make_strategy(config, mode):
    if config.strategy is None: return tf.distribute.get_strategy()
    n=config.num_replicas or 1
    if config.strategy=="mirrored": return tf.distribute.MirroredStrategy([f"/cpu:{i}" for i in range(n)])
    return tf.distribute.experimental.CentralStorageStrategy([f"/cpu:{i}" for i in range(n)], "/cpu:0")
def make_session_config(config, strategy):
    return tf.compat.v1.ConfigProto(device_count={"CPU":config.num_replicas or 1}, allow_soft_placement=True)
