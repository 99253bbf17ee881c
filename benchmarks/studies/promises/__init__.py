"""Do the promises of `longtail adjust`, made on validation images, hold on test images?"""
