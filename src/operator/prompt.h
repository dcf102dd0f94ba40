/*
 * Fixed texts for models.
 *
 * They do not change within a run, so that providers can cache the start of requests.
 */
#pragma once

extern const char prompt_system[];
extern const char prompt_nudge[], prompt_check[], prompt_check_again[], prompt_hand_over[],
    prompt_only_report[], prompt_aside_system[], prompt_aside[], prompt_cut[],
    prompt_unknown_outcome[];
