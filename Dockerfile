# Builds the image of weir:
#
#   docker build -t weir --build-arg GIT_COMMIT="$(git rev-parse HEAD)" .
#
# scripts/build-image does that with all arguments. For several platforms, build natively on each and join
# the images, as .github/workflows/release.yaml does: emulated compilers are slow.

# The base images, by tag. For a build that can be repeated bit by bit, name them with their digests
# (…:TAG@sha256:…); for a mirror, with its host. Both must be of the same Debian release: the program uses
# the C library that it was built with.
ARG BUILD_IMAGE=docker.io/library/rust:1.95-slim-bookworm
# glibc, libgcc, CA certificates and time zones; no shell. Do not use the smaller musl images:
# their allocator is much slower under several threads.
ARG RUNTIME_IMAGE=gcr.io/distroless/cc-debian12:nonroot

FROM ${BUILD_IMAGE} AS build
WORKDIR /src
COPY . .
# The commit that `weir --version` and /status show.
ARG GIT_COMMIT=
# The caches only save time: --locked builds the versions of Cargo.lock, and weir itself is always compiled
# again. Cargo goes by the times of files, and another checkout may have built newer ones. The cache that both
# commands share is the last one: Buildah 1.28 unlocks no other, and the second command would wait forever.
RUN --mount=type=cache,id=weir-target,target=/src/target,sharing=locked \
    --mount=type=cache,id=weir-registry,target=/usr/local/cargo/registry,sharing=locked \
    find Cargo.toml build.rs crates examples/library proto src -exec touch {} + && scripts/build-release /out && \
    mkdir /debug && mv /out/weir.debug /debug/
# The first time, this builds the program that collects the licenses.
RUN --mount=type=cache,id=weir-notices,target=/notices-target,sharing=locked \
    --mount=type=cache,id=weir-registry,target=/usr/local/cargo/registry,sharing=locked \
    CARGO_TARGET_DIR=/notices-target scripts/third-party-notices /THIRD-PARTY-NOTICES

# `docker build --target binary --output out .` writes the program to out/weir, its line tables to out/weir.debug.
FROM scratch AS binary
COPY --from=build /out/weir /debug/weir.debug /

FROM ${RUNTIME_IMAGE}
ARG VERSION=0.1.0
ARG GIT_COMMIT=
ARG SOURCE=
LABEL org.opencontainers.image.title="weir" \
      org.opencontainers.image.description="A rate-limit service for Envoy" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${GIT_COMMIT}" \
      org.opencontainers.image.source="${SOURCE}"
# The program, also under the name with which envoyproxy/ratelimit is started.
COPY --from=build /out/ /bin/
COPY --from=build /THIRD-PARTY-NOTICES /usr/share/doc/weir/
COPY LICENSE /usr/share/doc/weir/
# A number, so that Kubernetes can check runAsNonRoot.
USER 65532:65532
# gRPC, HTTP, debug (on loopback, unless it is opened), and the listener for Prometheus (off by default).
EXPOSE 8081 8080 6070 9090
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s --retries=3 CMD ["/bin/weir", "health"]
ENTRYPOINT ["/bin/weir"]
CMD ["serve"]
