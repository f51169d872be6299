"""Rows of earlier versions of a file that the newest one does not have."""

from benchmarks.training.replaced import replaced, table


def row(loss, compressor="dense()", seed="0", config="configs/mnist_dense.yaml", steps="10"):
    return {
        "config": config,
        "compressor": compressor,
        "seed": seed,
        "commit": "abc",
        "steps": steps,
        "test_loss": loss,
        "test_accuracy": "0.9" if compressor == "dense()" else "0.8",
    }


SPARSE = {"compressor": "top_k(0.1)", "config": "configs/mnist_top_k.yaml"}


def test_rows_of_the_newest_file_and_repeated_ones_are_left_out():
    first, second, third = row("1.0"), row("2.0"), row("3.0")
    found = replaced([[first, second], [second, third]], now=[third])
    assert [each["test_loss"] for each in found] == ["1.0", "2.0"]


def test_a_renamed_compressor_is_no_other_row():
    assert replaced([[row("1.0", "dgc_ladder(0.1)")]], now=[row("1.0", "dgc_warmup(0.1)")]) == []


def test_a_row_has_the_dense_score_that_stood_beside_it():
    other = row("4.0", config="configs/cifar10_resnet8_dense.yaml")
    longer = row("5.0", steps="20")
    (found,) = [
        each
        for each in replaced([[row("1.0"), row("2.0", **SPARSE), other, longer]], now=[])
        if each["compressor"] == "top_k(0.1)"
    ]
    assert found["dense_test_accuracy"] == 0.9
    assert found["dense_test_perplexity"] == ""


def test_without_dense_runs_the_score_is_empty():
    (found,) = replaced([[row("2.0", **SPARSE)]], now=[])
    assert table([found]) == [
        {
            "run": "`mnist_top_k.yaml`",
            "compressor": "`top_k(0.1)`",
            "steps": "10",
            "seeds": 1,
            "test accuracy": "80.00 %",
            "dense": "",
            "perplexity": "",
            "dense perplexity": "",
            "commit": "abc",
        }
    ]


def test_seeds_of_one_setting_are_one_line_with_their_mean():
    text = {"config": "configs/shakespeare_lstm_dense.yaml"}
    one, two = row("1.0", **text), row("2.0", seed="1", **text)
    found = replaced([[one | {"test_perplexity": "4.0"}, two | {"test_perplexity": "6.0"}]], now=[])
    (line,) = table(found)
    assert (line["seeds"], line["perplexity"], line["dense perplexity"]) == (2, "5.00", "5.00")
