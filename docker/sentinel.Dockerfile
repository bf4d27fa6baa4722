# A program that uses the library, under a sentinel as the first process of its container. It forwards signals, reaps orphans, exits
# with the program's code, and releases the program's elections if it crashes:
#
#   docker build --file docker/Dockerfile --tag incumbent .
#   docker build --file docker/sentinel.Dockerfile --tag my-daemon DIRECTORY
#
# Give the container the lock of the program: --env NATS_URL=…, or --env INCUMBENT_LOCK=….
ARG INCUMBENT=incumbent:latest
FROM ${INCUMBENT} AS incumbent

FROM debian:13-slim
COPY --from=incumbent /incumbent /usr/bin/incumbent
COPY my-daemon /usr/bin/my-daemon
USER 65534:65534
ENTRYPOINT ["/usr/bin/incumbent", "sentinel", "--"]
CMD ["/usr/bin/my-daemon"]
