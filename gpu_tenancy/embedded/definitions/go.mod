// The modules of pins.yaml are downloaded by name and version, not built: go.sum holds their checksums, and no module is
// required, since that would download the modules that they require in turn.
module github.com/gpu-tenancy/definitions

go 1.21
