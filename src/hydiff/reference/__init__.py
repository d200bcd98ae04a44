"""References: other images of the same place, aligned with the cube and used to predict it.

Letters: y (C, H, W) the cube, R bands of a reference, F features computed from them.

    grid      put a reference on the pixels of the cube
    own_gaps  pixels of a reference that are not used
    facts     dates and angles of images, and how much two images differ in them
    shift     the remaining shift between reference and cube
    planes    prepare a reference: mask, grid, alignment, and the facts to report about it
    image_choice  open the images that were given, and choose the best few of many
    regression    regressions of planes on features
    models    predict the bands of the cube from those of references
"""
