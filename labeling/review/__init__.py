"""What researchers do with judgements: see how far people agree, select, compare blind, adjudicate."""
