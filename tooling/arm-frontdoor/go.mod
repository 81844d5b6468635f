module github.com/hcpmesh/hcpmesh/tooling/arm-frontdoor

go 1.26.0
