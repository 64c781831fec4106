# Three images: test (everything in it to build and to check), build, and the release, which is the binary alone.
#
#   docker build --target test -t sandboxrun-test .
#   docker run --rm --security-opt seccomp=unconfined --security-opt apparmor=unconfined \
#     --security-opt systempaths=unconfined sandboxrun-test      # runs .ci/run: sandboxes nest, so the outer one must let them
#   docker build -t sandboxrun .
#
# Every step is one of the scripts that CI runs.
ARG GO_VERSION=1.26
FROM golang:${GO_VERSION}-bookworm AS go

FROM debian:bookworm-slim AS base
COPY --from=go /usr/local/go /usr/local/go
WORKDIR /src
COPY scripts scripts
COPY go.mod ./

FROM base AS test
RUN scripts/install --test --deps-only
COPY . .
RUN scripts/build
CMD [".ci/run"]

FROM base AS build
ARG VERSION=unknown
RUN scripts/install --deps-only
COPY . .
RUN scripts/build

# sandboxrun needs nothing but a kernel and what the policy grants. Put it into another image with
# COPY --from=sandboxrun /sandboxrun /usr/local/bin/, or take it out of this one.
FROM scratch AS release
COPY --from=build /src/bin/sandboxrun /sandboxrun
COPY --from=build /src/LICENSE /LICENSE
ENTRYPOINT ["/sandboxrun"]
