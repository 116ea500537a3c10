"""What `make test` leaves to `make test-slow`: tests that take long and check code that rarely changes.

`pytest_collection_modifyitems` in conftest.py marks them as slow. The number is how many parameters of a test stay in
`make test`, spread evenly over all of them; 0 leaves the whole test to `make test-slow`.
"""

KEPT = {
    "tests/attacks/test_image_jpeg.py::test_a_size_over_the_limits_is_refused_from_the_header": 40,
    "tests/attacks/test_repository_config_bombs.py::test_a_configuration_is_checked_in_seconds": 4,
    "tests/engine/test_bytes.py::test_bytes_go_from_each_layout_to_each_in_any_direction_and_are_looked_up": 4,
    "tests/engine/test_bytes.py::test_filters_are_numpys_in_every_layout": 14,
    "tests/engine/test_fuzz.py::test_damaged_images_texts_and_pipeline_files_give_a_result_or_the_documented_error": 0,
    "tests/engine/test_kernel.py::test_a_margin_before_the_resize_is_resampled_like_any_pixel": 4,
    "tests/engine/test_kernel.py::test_a_pipeline_equals_pillow": 46,
    "tests/engine/test_kernel.py::test_an_image_is_scaled_by_a_number_of_its_own_levels": 2,
    "tests/engine/test_kernel.py::test_each_layout_has_the_values_of_the_others": 10,
    "tests/engine/test_kernels.py::test_tensors_are_the_same_on_each_level": 1,
    "tests/engine/test_kernels.py::test_every_library_s_resize_equals_numpys": 17,
    "tests/engine/test_kernels.py::test_windows_of_a_rule_equal_those_of_numpy": 13,
    "tests/engine/test_parts.py::test_the_tensors_of_each_filter_are_those_of_whole_images": 17,
    "tests/engine/test_parts.py::test_no_window_reaches_out_of_the_part": 17,
    "tests/engine/test_pixels.py::test_a_tensor_of_pixels_is_that_of_the_file_that_has_them": 11,
    "tests/engine/test_reduced.py::test_a_slope_stays_where_it_is": 16,
    "tests/engine/test_reduced.py::test_damage_is_refused_at_every_fraction_in_the_same_words": 4,
    "tests/engine/test_reduced.py::test_no_image_becomes_smaller_than_twice_what_is_wanted": 4,
    "tests/engine/test_reduced.py::test_a_photo_costs_no_more_than_the_docs_say": 6,
    "tests/engine/test_video.py::test_a_clip_is_its_frames_through_the_same_ops": 4,
    "tests/engine/test_video_decoder.py::test_the_number_of_each_frame_is_the_one_that_is_wanted": 5,
    "tests/engine/test_video_decoder.py::"
    "test_a_clip_that_was_cut_between_key_frames_begins_with_the_first_that_decodes": 6,
    "tests/engine/test_video_decoder.py::test_a_first_key_frame_that_is_damaged_is_not_passed_over": 3,
    "tests/gpu/test_cuda.py::test_the_passes_are_the_same_whether_the_compiler_may_fuse_or_not": 1,
    "tests/gpu/test_cuda.py::test_a_fourth_channel_and_one_of_three_are_the_cpus": 1,
    "tests/gpu/test_cuda.py::test_dalis_ties_go_where_they_go_on_the_cpu": 1,
    "tests/gpu/test_cuda.py::test_the_comparison_sees_that_a_barrier_is_missing": 1,
    "tests/gpu/test_cuda.py::test_threads_come_in_no_order_and_shared_memory_begins_as_noise": 1,
    "tests/gpu/test_cuda_levels.py::test_long_random_lists_equal_the_cpus_bit_for_bit": 1,
    "tests/gpu/test_cuda_levels.py::test_every_step_equals_the_cpus_bit_for_bit": 1,
    "tests/gpu/test_cuda_levels.py::test_the_kernel_compiles_for_every_gpu_and_spills_no_register": 1,
    "tests/gpu/test_cuda_levels.py::test_the_passes_that_write_canvases_compile_and_spill_no_register": 1,
    "tests/gpu/test_cuda_levels.py::test_the_compiler_fuses_no_product_with_a_sum_but_those_that_the_cpu_fuses": 0,
    "tests/gpu/test_cuda_levels.py::test_an_image_is_scaled_by_a_number_of_its_own_levels": 2,
    "tests/gpu/test_cuda_surface.py::test_a_frame_has_the_colours_that_ffmpeg_gives_it": 20,
    "tests/gpu/test_gpu_clips.py::test_every_frame_of_a_clip_is_the_one_that_is_wanted": 1,
    "tests/gpu/test_gpu_clips.py::test_what_nvdec_might_show_otherwise_goes_to_the_cpu_and_is_counted": 2,
    "tests/gpu/test_gpu_clips.py::test_a_clip_that_was_cut_between_key_frames_begins_where_it_does_on_the_cpu": 1,
    "tests/gpu/test_gpu_clips.py::test_colours_are_by_the_matrix_and_the_range_of_the_stream": 3,
    "tests/gpu/test_gpu_kernels.py::test_kernels_are_checked_with_images_that_the_plan_takes": 1,
    "tests/gpu/test_gpu_outputs.py::test_every_output_error_and_count_equals_the_cpu_engines_alone_and_in_a_batch": 5,
    "tests/gpu/test_gpu_outputs.py::test_stacked_tensors_of_other_channels_equal_the_cpu_engines": 2,
    "tests/gpu/test_gpu_outputs.py::test_tensors_that_follow_the_image_and_their_padding_equal_the_cpu_engines": 2,
    "tests/gpu/test_gpu_outputs.py::test_what_is_drawn_is_the_cpus": 4,
    "tests/gpu/test_gpu_outputs.py::test_levels_that_are_served_are_the_cpus": 1,
    "tests/gpu/test_gpu_outputs.py::test_numbers_that_come_with_an_image_give_the_cpu_engines_values_and_errors": 2,
    "tests/gpu/test_gpu_outputs.py::test_what_is_erased_of_tensors_that_follow_the_image_is_the_cpus": 3,
    "tests/gpu/test_gpu_streams.py::"
    "test_a_batch_is_launched_in_parts_where_too_much_memory_would_lie_between_the_passes": 1,
    "tests/gpu/test_handover.py::test_every_step_sees_its_batch_however_late_the_copies_are": 2,
    "tests/gpu/test_jpeg_engine.py::test_the_hardware_engine_decodes_all_that_it_can_however_many_come": 1,
    "tests/gpu/test_jpeg_engine.py::test_a_gpu_decoder_that_decodes_something_else_stops_the_engine": 8,
    "tests/parity/test_opencv.py::test_fx_and_fy_give_what_opencv_gives": 2,
    "tests/parity/test_profiles.py::test_a_whole_pipeline_gives_what_the_library_gives": 8,
    "tests/parity/test_profiles.py::test_every_value_is_the_librarys": 10,
    "tests/pipeline/test_channels.py::test_each_frame_of_a_clip_has_them": 1,
    "tests/pipeline/test_channels.py::test_what_may_stand_behind_gray_keeps_it": 31,
    "tests/plan/test_policies.py::test_numbers_of_a_gamma_distribution_have_its_moments": 2,
    "tests/serving/test_found_onnx.py::test_dims_that_cannot_be_freed_are_refused_after_the_trial": 2,
    "tests/serving/test_found_onnx.py::test_a_reshape_to_the_frozen_batch_is_freed_with_it": 1,
    "tests/serving/server/test_clip_ensemble.py::test_the_lines_that_serve_says_take_a_clip": 0,
    "tests/serving/server/test_clip_ensemble.py::test_the_logits_are_the_mean_of_those_of_the_frames": 1,
    "tests/serving/server/test_detect.py::test_boxes_come_back_within_a_pixel_and_one_for_each_thing": 5,
    "tests/serving/server/test_drain.py::test_what_is_not_answered_in_the_grace_period_is_cut": 0,
    "tests/serving/server/test_embedded_server.py::"
    "test_a_second_server_stands_beside_the_first_and_starts_again_at_the_same_place": 0,
    "tests/serving/server/test_embedded_server.py::"
    "test_the_folders_of_a_killed_triton_are_removed_when_it_is_started_anew": 0,
    "tests/serving/server/test_embedded_server.py::"
    "test_a_process_that_is_killed_while_its_model_is_loaded_anew_is_told_of_as_that": 0,
    "tests/serving/server/test_embedded_server.py::"
    "test_triton_does_not_outlive_a_killed_parent_whatever_was_killed_before": 1,
    "tests/serving/server/test_faults.py::test_every_request_gets_one_answer_a_right_one_or_a_clear_error": 11,
    "tests/serving/server/test_inputs.py::test_the_page_shows_what_send_prints": 1,
    "tests/serving/server/test_page.py::"
    "test_the_page_waits_for_a_triton_that_dies_and_ends_with_the_supervisor_however_that_ends": 1,
    "tests/serving/server/test_perf_and_examples.py::"
    "test_perf_analyzer_measures_images_of_mixed_sizes_under_closed_and_open_loads": 1,
    "tests/serving/server/test_perf_and_examples.py::"
    "test_pytriton_server_gives_the_engines_tensors_and_says_what_is_wrong_with_an_image": 0,
    "tests/serving/server/test_readme.py::test_what_is_imported_verifies_and_explains": 0,
    "tests/serving/server/test_supervision.py::test_both_models_at_once_come_back_and_their_ensemble_with_them": 0,
    "tests/serving/server/test_supervision.py::test_more_connections_than_the_soft_limit_allows_cost_no_answer": 0,
    "tests/serving/server/test_supervision.py::"
    "test_triton_is_brought_back_while_an_edit_is_read_which_is_deployed_later": 0,
    "tests/serving/server/test_supervision.py::"
    "test_while_a_classifier_is_brought_back_preprocess_answers_every_request": 1,
    "tests/serving/server/test_supervision.py::"
    "test_a_copy_that_fails_is_named_and_leaves_nothing_and_the_next_edit_is_deployed": 0,
    "tests/serving/server/test_supervision.py::test_a_repository_without_a_model_of_ours_is_looked_after_as_well": 0,
    "tests/serving/server/test_tracing.py::test_a_collector_that_is_not_there_costs_no_request_and_no_grace": 0,
    "tests/serving/server/test_tracing.py::test_at_a_rate_of_one_every_request_is_traced": 0,
    "tests/training/test_killed.py::test_another_process_goes_on_after_kill_9": 9,
    "tests/training/test_loader_resources.py::test_a_process_ends_cleanly_in_mid_epoch": 2,
    "tests/training/test_mixing.py::test_no_image_is_mixed_with_a_copy_of_itself": 8,
}
