"""The components as a Pulumi plugin, for programs in every Pulumi language.

`plugin` is imported by the plugin's process alone: it loads Pulumi's copy of google/rpc/status.proto, which protobuf
rejects in a process that has Google's own copy, as every process with a client library of Google's has.
"""
