"""Experiments of the paper on a trained model; each gives numbers with intervals.

data          what the model has learned from, what it has never seen
noise         what a learned kernel has become
redrafting    noise unseen molecules a part of the way, and come back
repair        break unseen molecules, and compare with what people use today
steps         fewer reverse steps, and what they lose
editing       a wrong name or a missing span in a story, drawn anew
domain        what every domain says of its models
molecules     what is drawn and what is measured of them
stories       the same of stories
windows       unseen windows of playlists, continued and put right
playlists     what is measured of these
drawn         a small folder of all that is measured of a model
"""
