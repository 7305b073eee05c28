"""Stage 3: forward processes.

process     what every process can do        schedule   how fast x_0 is lost
markov      Bayes' rule for matrices         uniform    the reference, in closed form
absorbing   masks (MDLM)                     semantic   kernels over embeddings, learned or fixed
coupled     learned marginals (FLDD)         draws      random numbers, from generators
committed   kernels renewed block by block   confusion  what the denoiser takes for what
"""
