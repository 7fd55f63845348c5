"""The onnx package's own backend tests: a sample of them; `python -m tilework.bench.checks.onnx_suite` runs all."""

import numpy as np
import pytest

pytest.importorskip("onnx", reason="onnx's backend tests need the package onnx (extra onnx)")

SAMPLE = (
    "^test_(dequantizelinear_axis|quantizelinear_axis|add|clip_inbounds|qlinearconv|matmulinteger|"
    "transpose_all_permutations_0)_cpu$"
)


def test_a_sample_of_the_packages_own_tests_passes():
    from tilework.bench.checks import onnx_suite

    found = {name: onnx_suite.outcome(test) for _, name, test in onnx_suite.cases(SAMPLE)}
    assert len(found) == 7
    assert {name: what for name, what in found.items() if what[0] != "passed"} == {}


WHOLE_ARRAYS = (
    "^test_(gridsample_bicubic|gridsample_reflection_padding|gridsample_volumetric_nearest_align_corners_1|"
    "deform_conv_with_mask_bias|deform_conv_with_multiple_offset_groups|roialign_aligned_true|roialign_mode_max|"
    "col2im_dilations|maxunpool_export_with_output_shape|maxpool_with_argmax_2d_precomputed_pads|dft_axis|dft_irfft|stft|"
    "det_nd|cumprod_2d_negative_axis|reversesequence_time|bitcast_float32_to_int32|tensorscatter_circular|"
    "tfidfvectorizer_tf_batch_uniandbigrams_skip5|melweightmatrix|training_dropout_mask|nonmaxsuppression_two_classes|"
    "unique_not_sorted_without_axis|compress_1|sequence_model[1-6]|optional_get_element_tensor|sce_mean_weight_ii_4d|"
    "mod_float_edge_cases_fmod_0_float32|reduce_log_sum_exp_keepdims_random|einsum_batch_diagonal|einsum_inner_prod)_cpu$"
)


def test_what_numpy_does_on_whole_arrays_passes_the_packages_own_tests():
    from tilework.bench.checks import onnx_suite

    found = {name: onnx_suite.outcome(test) for _, name, test in onnx_suite.cases(WHOLE_ARRAYS)}
    assert len(found) == 36
    assert {name: what for name, what in found.items() if what[0] != "passed"} == {}


def test_a_node_runs_by_itself_and_another_device_is_refused():
    import onnx

    from tilework.frontends.onnx import backend
    from tilework.primitives.errors import ArgumentError

    node = onnx.helper.make_node("Sub", ["a", "b"], ["y"])
    found = backend.run_node(node, [np.float32([3, 2]), np.float32([1, 5])])
    assert found["y"].tolist() == found[0].tolist() == [2, -3]
    assert backend.supports_device("CPU:0")
    with pytest.raises(ArgumentError, match="CUDA"):
        backend.prepare(onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [])), "CUDA")
