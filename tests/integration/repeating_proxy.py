"""Stands in front of a TensorFlow server, and sends it some requests twice, as a network may.

    python repeating_proxy.py OWN_ADDRESS ADDRESS_OF_SERVER NUMBER...

The numbers count the requests to run a graph. The server refuses the second of two with ABORTED,
and that is the answer that the proxy returns.
"""

import itertools
import sys
import threading
from concurrent import futures

import grpc

_RUN_GRAPH = "/tensorflow.WorkerService/RunGraph"
_REFUSED = b"received twice"


class Proxy(grpc.GenericRpcHandler):
    """Forwards every call, and some twice."""

    def __init__(self, channel, repeated):
        self._channel, self._repeated = channel, repeated
        self._counts, self._lock = itertools.count(1), threading.Lock()

    def service(self, handler_call_details):
        method = handler_call_details.method
        call = self._channel.unary_unary(method)

        def forward(request, context):
            num_calls = 2 if method == _RUN_GRAPH and self._is_repeated() else 1
            calls = [call.future(request) for _ in range(num_calls)]
            try:
                answers = [call.result() for call in calls]
            except grpc.RpcError as error:
                context.set_trailing_metadata(error.trailing_metadata() or ())
                context.abort(error.code(), error.details())
            return next((answer for answer in answers if _REFUSED in answer), answers[0])

        return grpc.unary_unary_rpc_method_handler(forward)

    def _is_repeated(self):
        with self._lock:
            return next(self._counts) in self._repeated


def main(own_address, address, *numbers):
    # Some calls last until a tensor is made, and every one takes a thread.
    server = grpc.server(futures.ThreadPoolExecutor(100))
    channel = grpc.insecure_channel(address)
    server.add_generic_rpc_handlers([Proxy(channel, set(map(int, numbers)))])
    server.add_insecure_port(own_address)
    server.start()
    print("up", flush=True)
    server.wait_for_termination()


if __name__ == "__main__":
    main(*sys.argv[1:])
