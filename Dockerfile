# The operator's image, for those who build with Docker: docker buildx build --platform linux/amd64,linux/arm64 .
# `make docker-build` builds the same without Docker. GO_IMAGE may name a mirror of the image that it is built in.
ARG GO_IMAGE=golang:1.26
FROM --platform=$BUILDPLATFORM ${GO_IMAGE} AS build
WORKDIR /source
COPY go.mod go.sum ./
RUN go mod download
COPY *.go ./
COPY api/ api/
COPY controllers/ controllers/
COPY internal/ internal/
ARG TARGETOS
ARG TARGETARCH
RUN mkdir /image && mkdir -m 1777 /image/tmp \
    && CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -buildvcs=false -ldflags "-s -w -buildid=" \
    -o /image/sidecar-termination-operator .

FROM scratch
LABEL org.opencontainers.image.title="sidecar-termination-operator" \
    org.opencontainers.image.description="Ends sidecar containers once the main containers of a Job-type pod are done" \
    org.opencontainers.image.source="https://github.com/sidecar-termination/operator" \
    org.opencontainers.image.licenses="Apache-2.0"
# A directory that is copied by its own name loses its mode; what is in it does not.
COPY --from=build /image/ /
USER 65532:65532
ENTRYPOINT ["/sidecar-termination-operator"]
