"""What the second visit of a looped span does: routing, residual flow, attention, sink, Dyck head, causes.

Conventions of every table of this room: layers are 0-based physical layers, visits are 0-based; a later
visit is always compared with visit 0. Intervals are 2.5% and 97.5% points of a bootstrap over documents.
Definitions follow section 8 of the paper's specification.
"""
