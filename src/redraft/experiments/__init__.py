"""Experiments of the paper on a trained model of molecules; each gives numbers with intervals.

data          what the model has learned from, what it has never seen
noise         what a learned kernel has become
redrafting    noise unseen molecules a part of the way, and come back
repair        break unseen molecules, and compare with what people use today
"""
