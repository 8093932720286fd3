// The CRDs of cert-manager, which manifests/chart can use. They are files of the module; nothing of
// it is built.
module gpushare/test/e2e/programs/cert-manager

go 1.25.0

require github.com/cert-manager/cert-manager v1.19.1
