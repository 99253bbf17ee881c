"""Folders of images: does `longtail train FOLDER --time 3m` beat what others give for the same core-time?"""
