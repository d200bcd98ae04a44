"""Another image of the same place, from which gaps can be filled: onto the grid, aligned, related.

Letters: y (C, H, W) the cube, R bands of a reference, F features made of them.

    grid      a reference on the pixels of the cube
    own_gaps  what of a reference is not used
    facts     dates and angles, and how far the two are apart in them
    shift     by how much the two are still apart
    planes    both, into `ReferencePlanes`, with what is to be said about them
    image_choice  the best few of many
    regression    of planes on features
    models    what the bands of references say about those of the cube
"""
