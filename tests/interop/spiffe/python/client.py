"""py-spiffe, spiffe-tls, PyJWT and raw gRPC at our Workload API.

Prints one line of JSON for each thing that the test looks at. The socket is in SPIFFE_ENDPOINT_SOCKET, as for any workload.
"""

import json
import os
import sys
import threading


def say(**facts):
    print(json.dumps(facts), flush=True)


def until_stdin_ends():
    sys.stdin.buffer.read()


def watch():
    """Every update of an X509Source."""
    from spiffe import X509Source

    source = X509Source(timeout_in_seconds=20)
    done = threading.Event()

    def show():
        context = source.get_x509_context()
        svid = context.default_svid
        roots = {bundle.trust_domain.name: len(bundle.x509_authorities) for bundle in context.x509_bundle_set.bundles}
        say(id=str(svid.spiffe_id), serial=f"{svid.leaf.serial_number:x}", chain=len(svid.cert_chain), roots=roots)

    source.subscribe_for_updates(show)
    show()
    threading.Thread(target=lambda: (until_stdin_ends(), done.set()), daemon=True).start()
    done.wait()
    source.close()


def fetch():
    """One call, and how it is refused."""
    from spiffe import WorkloadApiClient

    say(refusal=refusal(lambda: WorkloadApiClient().fetch_x509_svid(timeout=10)))


def jwt(audience):
    """A JWT-SVID: checked by py-spiffe with the bundle it fetched, by the Workload API, and by PyJWT."""
    from spiffe import JwtSource, WorkloadApiClient
    from spiffe.svid.jwt_svid import JwtSvid

    client = WorkloadApiClient()
    with JwtSource(timeout_in_seconds=20) as source:
        svid = source.fetch_svid(audience={audience})
        bundle = source.get_bundle_for_trust_domain(svid.spiffe_id.trust_domain)
        local = JwtSvid.parse_and_validate(svid.token, bundle, {audience})
        remote = client.validate_jwt_svid(svid.token, audience)
        wrong = refusal(lambda: client.validate_jwt_svid(svid.token, "somebody-else"))
        header, claims = with_pyjwt(svid.token, audience, bundle)
        say(
            local=str(local.spiffe_id),
            remote=str(remote.spiffe_id),
            wrong_audience=wrong,
            header=header,
            lifetime=claims["exp"] - claims["iat"],
            subject=claims["sub"],
        )


def with_pyjwt(token, audience, bundle):
    import jwt as pyjwt

    header = pyjwt.get_unverified_header(token)
    key = bundle.get_jwt_authority(header["kid"])
    claims = pyjwt.decode(token, key, algorithms=["ES256"], audience=audience, options={"require": ["exp", "sub", "aud"]})
    return header, claims


def refusal(call):
    try:
        call()
    except Exception as error:  # what it is called is what the test looks at
        return f"{type(error).__name__}: {error}"
    return None


def serve():
    """A TLS server of spiffe-tls that tells its client who it takes it for."""
    import socket
    from spiffe import X509Source
    from spiffetls import ListenOptions, listen
    from spiffetls.tlsconfig.authorize import authorize_any
    from spiffetls.mode import ServerTlsMode

    probe = socket.socket()
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
    probe.close()
    source = X509Source(timeout_in_seconds=20)
    options = ListenOptions(tls_mode=ServerTlsMode.MTLS, authorize_fn=authorize_any())
    server = listen(f"127.0.0.1:{port}", source, options)
    say(address=f"127.0.0.1:{port}")

    def greet():
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            try:
                connection.recv(1)
                peer = uri_of(connection)
                say(client=peer)
                connection.sendall(peer.encode())
                connection.shutdown()
            except Exception as error:
                say(refused=f"{type(error).__name__}: {error}")
            finally:
                connection.close()

    threading.Thread(target=greet, daemon=True).start()
    until_stdin_ends()


def uri_of(connection):
    from cryptography.x509 import SubjectAlternativeName, UniformResourceIdentifier

    names = connection.get_peer_certificate(as_cryptography=True).extensions.get_extension_for_class(SubjectAlternativeName)
    return names.value.get_values_for_type(UniformResourceIdentifier)[0]


def dial(address, expected):
    """A TLS client of spiffe-tls that expects its server to have an ID."""
    from spiffe import SpiffeId, X509Source
    from spiffetls import dial as connect
    from spiffetls.tlsconfig.authorize import authorize_id

    with X509Source(timeout_in_seconds=20) as source:
        connection = connect(address, source, authorize_fn=authorize_id(SpiffeId(expected)))
        connection.sendall(b"\0")
        say(server_said=all_of(connection).decode())
        connection.close()


def all_of(connection):
    from OpenSSL import SSL

    said = b""
    while True:
        try:
            said += connection.recv(1024)
        except SSL.ZeroReturnError:
            return said


def raw():
    """Calls that no library makes: what is wrong with them must be answered with the code of the standard."""
    import grpc
    from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
    from spiffe._proto import workload_pb2

    target = os.environ["SPIFFE_ENDPOINT_SOCKET"]
    good = (("workload.spiffe.io", "true"),)
    empty = workload_pb2.X509SVIDRequest()

    def code(method, request, metadata, stream=False):
        with grpc.insecure_channel(target) as channel:
            path = f"/SpiffeWorkloadAPI/{method}"
            encode, ignore = type(request).SerializeToString, lambda data: data
            try:
                if stream:
                    next(iter(channel.unary_stream(path, encode, ignore)(request, metadata=metadata, timeout=10)))
                else:
                    channel.unary_unary(path, encode, ignore)(request, metadata=metadata, timeout=10)
            except grpc.RpcError as error:
                return error.code().name
            return "OK"

    headers = {
        "none": (),
        "true": good,
        "True": (("workload.spiffe.io", "True"),),
        "twice": good + good,
        "other": (("workload.spiffe.io", "1"),),
    }
    methods = [
        ("FetchX509SVID", empty, True),
        ("FetchX509Bundles", workload_pb2.X509BundlesRequest(), True),
        ("FetchJWTBundles", workload_pb2.JWTBundlesRequest(), True),
        ("FetchJWTSVID", workload_pb2.JWTSVIDRequest(audience=["a"]), False),
        ("ValidateJWTSVID", workload_pb2.ValidateJWTSVIDRequest(audience="a", svid="x"), False),
    ]
    for method, request, stream in methods:
        say(method=method, codes={name: code(method, request, metadata, stream) for name, metadata in headers.items()})
    jwt = workload_pb2.JWTSVIDRequest
    say(
        empty_audience=code("FetchJWTSVID", jwt(), good),
        blank_audience=code("FetchJWTSVID", jwt(audience=[""]), good),
        not_an_id=code("FetchJWTSVID", jwt(audience=["a"], spiffe_id="x"), good),
        not_entitled=code("FetchJWTSVID", jwt(audience=["a"], spiffe_id="spiffe://test.example/other"), good),
        validate_nothing=code("ValidateJWTSVID", workload_pb2.ValidateJWTSVIDRequest(audience="a"), good),
        validate_for_nobody=code("ValidateJWTSVID", workload_pb2.ValidateJWTSVIDRequest(svid="a"), good),
        unknown_method=code("FetchWITSVID", empty, good),
    )
    with grpc.insecure_channel(target) as channel:
        say(services=sorted(ProtoReflectionDescriptorDatabase(channel).get_services()))


if __name__ == "__main__":
    commands = {"watch": watch, "fetch": fetch, "jwt": jwt, "serve": serve, "dial": dial, "raw": raw}
    commands[sys.argv[1]](*sys.argv[2:])
