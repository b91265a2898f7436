# The operator's image, for those who build with Docker: docker buildx build --platform linux/amd64,linux/arm64 .
# `make images` builds the same without Docker.
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /source
COPY go.mod go.sum ./
RUN go mod download
COPY *.go ./
COPY api/ api/
COPY controllers/ controllers/
COPY internal/ internal/
ARG TARGETOS
ARG TARGETARCH
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -buildvcs=false -ldflags "-s -w -buildid=" -o /operator . \
    && install -d -m 1777 /temporary

FROM scratch
COPY --from=build /operator /sidecar-termination-operator
COPY --from=build /temporary /tmp
USER 65532:65532
ENTRYPOINT ["/sidecar-termination-operator"]
