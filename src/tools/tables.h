/*
 * JSON schemas of the tools' inputs and outputs, made from the tables in tables.c.
 *
 * Models read the descriptions, so each states what a value is, its unit and its default.
 */
#pragma once

#include "service/schema.h"

extern const struct schema exec_input_schema, install_input_schema, fetch_input_schema,
    fetch_output_schema, session_input_schema, exec_output_schema, read_input_schema,
    read_output_schema, write_input_schema, write_output_schema, edit_input_schema,
    edit_output_schema, transfer_input_schema, transfer_output_schema, preview_input_schema,
    preview_output_schema, patch_input_schema, patch_output_schema, list_input_schema,
    list_output_schema, search_input_schema, search_output_schema, plan_input_schema,
    plan_output_schema, ask_input_schema, ask_output_schema, finish_input_schema,
    finish_output_schema, program_input_schema, program_output_schema, machine_create_input_schema,
    machine_output_schema, machine_preview_input_schema, python_input_schema, python_output_schema,
    checkpoint_input_schema, rewind_input_schema, step_output_schema, diff_input_schema,
    diff_output_schema, fork_input_schema, machine_list_output_schema, machine_destroy_input_schema,
    joined_input_schema, joined_output_schema, desktop_screenshot_schema, desktop_click_schema,
    desktop_move_schema, desktop_scroll_schema, desktop_type_schema, desktop_key_schema,
    desktop_output_schema, browser_input_schema, browser_output_schema;
