"""Fixes of messages name the stack's keys for a stack's resource, and Kubernetes' fields otherwise."""

import re
from typing import Any

import pytest

import cloud_rules
import workload_rules
from gpu_tenancy.model.schema import file_schema
from rule_engine import Pack, Resource
from workload_rules import jobs, security

JOB = "kubernetes:batch/v1:Job"
TEXT = "requests 8 nvidia.com/gpu without a time limit; set spec.activeDeadlineSeconds: 604800 or less"
OF_STACK = f"urn:pulumi:prod::gpu-tenancy::gpu-tenancy:tenancy:Tenancy$gpu-tenancy:tenancy:TrainingJob${JOB}::nightly"


def test_a_job_of_a_stack_is_fixed_by_the_key_of_the_stack() -> None:
    message = jobs.gpu_jobs_end.message(TEXT, Resource(JOB, urn=OF_STACK))
    assert message == (
        "requests 8 nvidia.com/gpu without a time limit; set `deadline` of the job in the stack to 7d or less"
    )


@pytest.mark.parametrize(
    "urn", [f"urn:pulumi:prod::gpu-tenancy::{JOB}::gpu-tenancy:nightly", f"urn:pulumi:prod::p::my:Team${JOB}::n", ""]
)
def test_fix_for_another_program_names_the_kubernetes_field(urn: str) -> None:
    assert jobs.gpu_jobs_end.message(TEXT, Resource(JOB, urn=urn)) == TEXT


def test_a_rule_without_a_fix_for_stacks_keeps_its_own() -> None:
    text = "is privileged; remove it"
    assert security.no_privileged.message(text, Resource(JOB, urn=OF_STACK)) == text


@pytest.mark.parametrize("pack", [workload_rules.PACK, cloud_rules.PACK], ids=lambda pack: pack.name)
def test_each_key_in_a_fix_is_a_key_of_a_stack(pack: Pack) -> None:
    schema: Any = file_schema()
    keys = {key for section in schema["$defs"].values() for key in section.get("properties", {})}
    keys |= {key.partition(":")[2] for key in schema["properties"]["config"]["properties"]}
    named = {
        part
        for rule in pack.rules
        for path in re.findall(r"`([\w.]+)(?:: \w+)?`", rule.stack_fix)
        for part in path.split(".")
    }
    assert len(named) > 3
    assert named <= keys
