module github.com/sidecar-termination/operator/hack/site

go 1.26.0

require github.com/imfing/hextra v0.9.7 // indirect
