"""What the second visit of a looped span does: routing, residual flow, attention, sink, Dyck head, causes.

Conventions of every table of this room: layers are 0-based physical layers, visits are 0-based; a later
visit is always compared with visit 0. Intervals are 2.5% and 97.5% points of a bootstrap over documents,
in the Dyck tables over prompts.
Definitions follow section 8 of the paper's specification; each module's `tables` says what its columns mean.

    routing        routing_overlap                              figures 12, 14c
    residual       residual_flow norm_ratios update_cosine      figures 13, 14d-h, 15
    likeness       visit_cosine                                 figure 16
    attention      token_overlap sink                           figures 14a-b, 17, 19, 25
    dyck           dyck_heads dyck_map dyck_mass                figure 18
    interventions  interventions                                ours
    bootstrap      diagnostics: one number of the whole run, its reference and their paired difference

`walk` is the one place that knows how a block is put together; `capture` feeds all of them in one pass.
"""
