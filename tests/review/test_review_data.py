"""A review lists the data of teams, and its verdict says what teams gain, lose and must end."""

from typing import Any

from builders import Data, job
from review_pages import outlook_of, reviewed, small

from gpu_tenancy.base.quantity import format_bytes
from gpu_tenancy.base.texts import DASH
from gpu_tenancy.model.load import load
from gpu_tenancy.model.outlook.data import rights_to_grant
from gpu_tenancy.model.source import Source
from gpu_tenancy.review.comment import comment
from gpu_tenancy.review.figures_tables import tables


def with_data(bucket: str = "s3://ml-corpus/v3", **dataset: Any) -> Data:
    """The smallest stack, with a dataset that a job mounts."""
    sections = small()
    cluster = {**sections.get("cluster", {"cloud": "existing"})}
    cluster["provides"] = [*cluster.get("provides", []), "s3Volumes", "gcsVolumes", "blobVolumes"]
    return {**sections, "cluster": cluster, "datasets": {"corpus": {"bucket": bucket, "teams": ["vision"], **dataset}}}


def without_datasets() -> Data:
    return {**with_data(), "datasets": {}}


def mounted(sections: Data) -> Data:
    sections["teams"]["vision"]["training"] = {"train": job(datasets={"corpus": "/data"})}
    return sections


def test_a_team_that_gains_a_dataset_is_in_the_verdict_and_needs_review() -> None:
    review = reviewed(outlook_of(with_data()), before=outlook_of(without_datasets()))
    assert review.verdict.title == "Review needed"
    assert review.verdict.sentences[0] == "Team vision gains read of corpus (s3://ml-corpus/v3)"


def test_a_reader_that_may_write_gains_writing() -> None:
    verdict = reviewed(outlook_of(with_data(writable=True)), before=outlook_of(with_data())).verdict
    assert verdict.sentences[0] == "Team vision gains write of corpus (s3://ml-corpus/v3)"


def test_a_dataset_that_is_removed_keeps_its_data_and_needs_no_review() -> None:
    verdict = reviewed(outlook_of(without_datasets()), before=outlook_of(with_data())).verdict
    assert verdict.title == "OK"
    assert verdict.sentences[:2] == (
        "Team vision loses read of corpus (s3://ml-corpus/v3)",
        "Dataset corpus is removed; its data stays in s3://ml-corpus/v3",
    )


def test_storage_that_one_of_two_teams_loses_is_named_though_the_other_has_the_same_name() -> None:
    before, now = small(), small()
    storage = {"storage": {"scratch": {"size": "1Ti"}}}
    for name in ("speech", "vision"):
        before["teams"][name] |= storage
    now["teams"]["vision"] |= storage
    verdict = reviewed(outlook_of(now), before=outlook_of(before)).verdict
    kept = "Storage scratch of speech is removed; its volume stays unless its class deletes it"
    assert [sentence for sentence in verdict.sentences if "Storage" in sentence] == [kept]


def test_a_dataset_under_another_name_is_the_same_right() -> None:
    renamed = with_data()
    renamed["datasets"] = {"text": renamed["datasets"]["corpus"]}
    verdict = reviewed(outlook_of(renamed), before=outlook_of(with_data())).verdict
    assert not [sentence for sentence in verdict.sentences if "gains" in sentence or "loses" in sentence]


def test_a_moved_dataset_names_its_users_and_the_order() -> None:
    before, now = (mounted(with_data(f"s3://ml-corpus/{version}")) for version in ("v3", "v4"))
    verdict = reviewed(outlook_of(now), before=outlook_of(before)).verdict
    assert verdict.title == "Review needed"
    (moved,) = (sentence for sentence in verdict.sentences if "moves" in sentence)
    assert moved == (
        "Dataset corpus moves from s3://ml-corpus/v3 to s3://ml-corpus/v4: first end the pods of vision/job train, then"
        " the claims of vision are replaced; or add the new place as another dataset, and remove this one later"
    )


def test_each_claim_has_a_row_and_the_comment_lists_grants() -> None:
    review = reviewed(outlook_of(mounted(with_data())))
    (row,) = tables(review)["data"].rows
    assert [cell.text for cell in row.cells] == [
        "vision",
        "corpus",
        "s3://ml-corpus/v3",
        "read",
        DASH,
        "job train",
    ]
    assert "Rights on data" in comment(review)


def test_rights_on_google_folders_name_the_principals() -> None:
    (right,) = rights_to_grant(load(Source(with_data("gs://ml-corpus/v3"))))
    assert right == (
        "Grant the ServiceAccounts vision/default and vision/workload of the cluster: role"
        " roles/storage.objectViewer on the managed folder gs://ml-corpus/v3/"
    )


def cached(bucket: str = "s3://ml-corpus/v3") -> Data:
    """The same stack, with a cache of the dataset on the nodes of its GPU pool."""
    sections = mounted(with_data(bucket))
    sections["datasets"]["corpus"]["accelerate"] = {"cache": "40Gi", "flavor": "h100", "secret": "keys", "warm": True}
    return sections


def test_a_cache_replaces_claims_and_lists_its_resources() -> None:
    review = reviewed(outlook_of(cached()), before=outlook_of(mounted(with_data())))
    assert review.verdict.title == "Review needed"
    assert (
        "Dataset corpus gets a cache: first end the pods of vision/job train, then the claims of vision are replaced"
        in review.verdict.sentences
    )
    (row,) = tables(review)["caches"].rows
    (cache,) = review.now.caches
    texts = [cell.text for cell in row.cells]
    assert texts[:2] == ["corpus", "alluxio"]
    assert texts[4] == "40Gi memory, loaded once created"
    assert texts[6] == f"{format_bytes(cache.memory)} ({cache.of_memory:.0%})"
    assert "Caches of datasets" in comment(review)


def test_a_cache_does_not_move() -> None:
    verdict = reviewed(outlook_of(cached("s3://ml-corpus/v4")), before=outlook_of(cached())).verdict
    (moved,) = (sentence for sentence in verdict.sentences if "moves" in sentence)
    assert moved.endswith("but Fluid does not move a cache: add the new place as another dataset, and remove this one")


def stored(price: float | None = 0.5, **storage: Data) -> Data:
    """The smallest stack, with storage of a class whose price the stack may have."""
    sections = without_datasets()
    sections["teams"]["vision"]["storage"] = storage
    return {**sections, "prices": {"disks": {"gibMonth": price}} if price else {}}


DISK: Data = {"size": "100Gi", "storageClass": "disks"}


def test_costs_of_storage_are_in_tables_and_verdict_beside_a_base_without_storage() -> None:
    review = reviewed(outlook_of(stored(ck=DISK)), before=outlook_of(without_datasets()))
    all_ = tables(review)
    assert [column.title for column in all_["cost-by-team"].columns][-1] == "storage"
    costs = {line.cells[0].text: line.cells[-1] for line in all_["cost-by-team"].rows}
    assert {name: (cell.text, cell.was) for name, cell in costs.items() if cell.was} == {
        "vision": ("$50", "$0"),
        "all teams": ("$50", "$0"),
    }
    assert "$50" in {line.cells[-1].text for line in all_["cost-by-centre"].rows}
    place = [column.title for column in all_["data"].columns].index("monthly cost")
    assert [line.cells[place].text for line in all_["data"].rows] == ["$50"]
    assert any(sentence.endswith(", storage +$50") for sentence in review.verdict.sentences)


def test_storage_without_a_price_is_unknown_in_each_sum_and_the_costs_of_gpus_stay() -> None:
    unpriced = stored(None, ck={"size": "1Gi"})
    known, unknown = (tables(reviewed(outlook_of(sections))) for sections in (stored(ck=DISK), unpriced))
    costs = {line.cells[0].text: line.cells[-1].text for line in unknown["cost-by-team"].rows}
    assert {name for name, text in costs.items() if text == "unknown"} == {"vision", "all teams"}
    assert [line.cells[2].text for line in unknown["cost-by-team"].rows] == [
        line.cells[2].text for line in known["cost-by-team"].rows
    ]


def test_without_storage_no_table_has_a_column_for_it() -> None:
    all_ = tables(reviewed(outlook_of(with_data())))
    assert "storage" not in {column.title for column in all_["cost-by-team"].columns}
    assert "monthly cost" not in {column.title for column in all_["data"].columns}


def test_the_report_says_when_snapshots_of_storage_are_taken_and_that_their_cost_is_unknown() -> None:
    sections = with_data()
    sections["cluster"]["provides"].append("volumeSnapshots")
    taken = {"schedule": "0 3 * * *", "keep": 3, "class": "csi"}
    sections["teams"]["vision"]["storage"] = {"ck": {"size": "1Gi", "snapshots": taken}, "tmp": {"size": "1Gi"}}
    rows = tables(reviewed(outlook_of(sections)))["data"].rows
    places = {row.cells[1].text: row.cells[2].text for row in rows}
    assert places["ck"] == "default StorageClass; snapshots 0 3 * * * UTC, 3 kept, cost unknown"
    assert places["tmp"] == "default StorageClass"
